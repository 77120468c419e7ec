// Package support collects what the report of a problem needs in a .tar.gz file: the files that [Bundle] can add. None of
// them contains a secret of the hive or of the state folder, and none contains what a program has printed, except that an
// error quotes the last lines of a program that failed. So there is nothing to search for secrets.
package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// Bundle is the content of the file.
type Bundle struct {
	Time  time.Time // of its files
	files []file
}

type file struct {
	name string
	data []byte
}

// AddText adds a text, followed by the error if there is one.
func (b *Bundle) AddText(name, text string, err error) {
	if err != nil {
		text += "\n" + err.Error() + "\n"
	}
	b.files = append(b.files, file{name, []byte(text)})
}

// AddJSON adds a value as JSON.
func (b *Bundle) AddJSON(name string, value any) {
	data, err := json.MarshalIndent(value, "", "  ")
	b.AddText(name, string(data)+"\n", err)
}

// lastRuns is the number of runs whose records are added.
const lastRuns = 5

// AddRuns adds the records of the last runs, and their events without texts: the logs of nodes and builds are events.
func (b *Bundle) AddRuns(dir state.Dir) {
	list, err := runs.List(dir)
	if err != nil {
		b.AddText("runs.txt", "", err)
	}
	for _, summary := range list[:min(lastRuns, len(list))] {
		folder := "runs/" + summary.ID + "/"
		run, err := runs.Open(dir, summary.ID)
		if err != nil {
			b.AddText(folder+"error.txt", "", err)
			continue
		}
		b.AddJSON(folder+"run.json", run)
		events, _, err := run.Events()
		var text bytes.Buffer
		for _, e := range events {
			e.Text = ""
			line, _ := json.Marshal(e)
			text.Write(append(line, '\n'))
		}
		b.AddText(folder+"events.jsonl", text.String(), err)
	}
}

// AddHive adds the names, sizes and addresses in the hive, and the names of its keys.
func (b *Bundle) AddHive(hive *nixeval.Hive) {
	type role struct {
		Count  int    `json:"count"`
		VCPUs  int    `json:"vcpus"`
		Memory string `json:"memory"`
		Disk   string `json:"disk"`
	}
	type node struct {
		nixeval.Node
		Engine     string   `json:"engine,omitempty"`
		EngineRole string   `json:"engineRole,omitempty"`
		Keys       []string `json:"keys"`
	}
	roles, nodes := map[string]role{}, []node{}
	for name, r := range hive.Roles {
		roles[name] = role{r.Count, r.VCPUs, r.Memory, r.Disk}
	}
	for _, n := range hive.Nodes {
		described := node{Node: n, Keys: []string{}}
		if u := hive.Unit(n.Unit); u != nil {
			described.Keys = slices.AppendSeq(described.Keys, maps.Keys(u.Deployment.Keys))
			slices.Sort(described.Keys)
			if engine := u.Deployment.Engine; engine != nil {
				described.Engine, described.EngineRole = engine.Kind, engine.Role
			}
		}
		nodes = append(nodes, described)
	}
	b.AddJSON("hive.json", map[string]any{"name": hive.ClusterName(), "roles": roles, "nodes": nodes})
}

// Encode returns the bundle as a .tar.gz file.
func (b *Bundle) Encode() ([]byte, error) {
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	files := tar.NewWriter(packed)
	for _, f := range b.files {
		if err := files.WriteHeader(&tar.Header{Name: "nixbench-support/" + f.name, Mode: 0o600, Size: int64(len(f.data)), ModTime: b.Time}); err != nil {
			return nil, err
		}
		if _, err := files.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := files.Close(); err != nil {
		return nil, err
	}
	err := packed.Close()
	return out.Bytes(), err
}
