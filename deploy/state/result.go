package state

// NodeResult is a run's result for one node.
type NodeResult struct {
	Node    string  `json:"node"`
	Unit    string  `json:"unit"`
	Path    string  `json:"path,omitempty"`
	Before  int     `json:"before,omitempty"` // the generation of the node's system profile before the run
	After   int     `json:"after,omitempty"`  // the generation of the node's system profile after the run
	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"`
}

// Outcome says how a run ended for a node, such as failed.
type Outcome string

const (
	Unchanged  Outcome = "unchanged"
	Switched   Outcome = "switched"
	RolledBack Outcome = "rolled-back"
	Failed     Outcome = "failed"
	Skipped    Outcome = "skipped"
	Away       Outcome = "away" // the node may be away, and was not reachable when the run began
)
