package state

// NodeResult is a run's result for one node.
type NodeResult struct {
	Node    string  `json:"node"`
	Unit    string  `json:"unit"`
	Path    string  `json:"path,omitempty"`
	Before  int     `json:"before,omitempty"` // the profile's generation before the run
	After   int     `json:"after,omitempty"`  // the profile's generation after the run
	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"`
}

// Outcome is how a run ended for a node.
type Outcome string

const (
	Unchanged  Outcome = "unchanged"
	Switched   Outcome = "switched"
	RolledBack Outcome = "rolled-back"
	Failed     Outcome = "failed"
	Skipped    Outcome = "skipped"
)
