package export

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"time"
)

// CrateFile is the name of the metadata of an RO-Crate, in the folder that it describes.
const CrateFile = "ro-crate-metadata.json"

// mediaTypes are those of the files of a sweep. The table of the system differs between machines.
var mediaTypes = map[string]string{
	".json": "application/json", ".jsonl": "application/x-ndjson", ".csv": "text/csv", ".txt": "text/plain", ".swf": "text/plain", ".log": "text/plain",
	".html": "text/html", ".nix": "text/plain", ".svg": "image/svg+xml",
}

type (
	entity    map[string]any
	reference struct {
		ID string `json:"@id"`
	}
)

// Crate writes the metadata of an RO-Crate 1.1: the sweep as a dataset with its files, and the run of nixbench that created them.
func Crate(w io.Writer, s Sweep) error {
	if s.Started.IsZero() || s.Ended.IsZero() {
		return fmt.Errorf("export: the sweep %s has no start or no end, which an RO-Crate must have", s.ID)
	}
	var files []entity
	parts := []reference{}
	seen := map[string]bool{CrateFile: true}
	for _, f := range s.Files {
		if !fs.ValidPath(f.Path) || f.Path == "." || seen[f.Path] {
			return fmt.Errorf("export: %q is not the path of another file in the folder of the sweep", f.Path)
		}
		seen[f.Path] = true
		id := (&url.URL{Path: f.Path}).String()
		parts = append(parts, reference{id})
		e := entity{"@id": id, "@type": "File", "name": f.Path, "contentSize": fmt.Sprint(f.Size), "sha256": f.SHA256}
		if m := mediaTypes[path.Ext(f.Path)]; m != "" {
			e["encodingFormat"] = m
		}
		files = append(files, e)
	}
	action := reference{"#" + url.PathEscape("sweep-"+s.ID)}
	software := reference{"#nixbench"}
	dataset := entity{"@id": "./", "@type": "Dataset", "name": s.Name, "identifier": s.ID, "hasPart": parts, "mentions": []reference{action},
		"description":   fmt.Sprintf("Results of the sweep %s: %d trials of %d cells", s.Name, len(s.Trials), len(s.Cells)),
		"datePublished": s.Ended.UTC().Format(time.RFC3339)}
	program := entity{"@id": software.ID, "@type": "SoftwareApplication", "name": "nixbench"}
	if s.Version != "" {
		program["softwareVersion"] = s.Version
	}
	graph := []entity{
		{"@id": CrateFile, "@type": "CreativeWork", "conformsTo": reference{"https://w3id.org/ro/crate/1.1"}, "about": reference{"./"}},
		dataset,
		{"@id": action.ID, "@type": "CreateAction", "name": "Run of the sweep " + s.Name, "startTime": s.Started.UTC().Format(time.RFC3339),
			"endTime": s.Ended.UTC().Format(time.RFC3339), "instrument": software, "result": parts},
		program,
	}
	if s.License != "" {
		dataset["license"] = reference{s.License}
		graph = append(graph, entity{"@id": s.License, "@type": "CreativeWork", "name": s.License})
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(map[string]any{
		// The context of RO-Crate 1.1 does not define sha256.
		"@context": []any{"https://w3id.org/ro/crate/1.1/context", map[string]string{"sha256": "http://schema.org/sha256"}},
		"@graph":   append(graph, files...),
	})
}

// Files returns the regular files of a folder with their hashes, without the metadata of an RO-Crate.
func Files(folder fs.FS) ([]File, error) {
	var out []File
	err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || name == CrateFile {
			return err
		}
		f, err := folder.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		sum := sha256.New()
		size, err := io.Copy(sum, f)
		out = append(out, File{Path: name, Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("export: hash the files of the sweep: %w", err)
	}
	return out, nil
}
