package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/nixbench/nixbench/bench"
)

// Publication says who publishes a sweep, and under which license.
type Publication struct {
	Author  string // a name, or a name and the address of a page about this person: NAME <URL>
	License string // the URL of a license
}

// Check returns an error if the author or the license is invalid.
func (p Publication) Check() error {
	if name, page := p.author(); name == "" || page != "#author" && !isURL(page) {
		return errors.New("the author is not NAME or NAME <URL>")
	}
	if !isURL(p.License) {
		return errors.New("the license is not a URL, such as https://creativecommons.org/licenses/by/4.0/")
	}
	return nil
}

// author returns the name of the author, and the URL that identifies this person.
func (p Publication) author() (name, id string) {
	name, id, ok := strings.Cut(strings.TrimSuffix(p.Author, ">"), "<")
	if !ok {
		id = "#author"
	}
	return strings.TrimSpace(name), id
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}

// homepage is the URL of nixbench.
const homepage = "https://github.com/nixbench/nixbench"

// crateProfile is the profile of RO-Crates that describe the execution of programs.
const crateProfile = "https://w3id.org/ro/wfrun/process/0.5"

// crateTime is the form of times in an RO-Crate. The profile wants an offset, also for UTC.
const crateTime = "2006-01-02T15:04:05-07:00"

// mediaTypes are those of the files of a sweep. The table of the system differs between computers.
var mediaTypes = map[string]string{".json": "application/json", ".jsonl": "application/x-ndjson", ".log": "text/plain", ".nix": "text/plain"}

type entity map[string]any

func ref(id string) entity { return entity{"@id": id} }

// compact returns the only element of a list, or the list: RO-Crates have no lists with one element.
func compact(list []entity) any {
	if len(list) == 1 {
		return list[0]
	}
	return list
}

// Crate returns the metadata of a sweep's archive: a Process Run Crate, which is an RO-Crate 1.1. The sweep is a dataset with files, and the
// execution of the benchmark has created the files of its trials from the other files. attempts is the result of
// [bench.Store.AllAttempts].
func Crate(s bench.Sweep, attempts map[int][]bench.Attempt, files []bench.ArchivedFile, p Publication) ([]byte, error) {
	began, ended := s.Created, s.Created
	for _, all := range attempts {
		for _, a := range all {
			if a.Ended.After(ended) {
				ended = a.Ended
			}
		}
	}
	parts, inputs, results, entities := []entity{}, []entity{}, []entity{}, []entity{}
	for _, f := range files {
		id := (&url.URL{Path: f.Path}).String()
		e := entity{"@id": id, "@type": "File", "name": f.Path, "contentSize": fmt.Sprint(f.Size), "sha256": f.SHA256}
		if m := mediaTypes[path.Ext(f.Path)]; m != "" {
			e["encodingFormat"] = m
		}
		entities, parts = append(entities, e), append(parts, ref(id))
		if strings.HasPrefix(f.Path, "trials/") {
			results = append(results, ref(id))
		} else {
			inputs = append(inputs, ref(id))
		}
	}
	action := "#" + url.PathEscape(s.ID)
	author, person := p.author()
	text := fmt.Sprintf("Results of the benchmark %s with nixbench: %d trials of %d configurations", s.Name, len(s.Trials), len(s.Configurations))
	graph := []entity{
		{"@id": "ro-crate-metadata.json", "@type": "CreativeWork", "conformsTo": ref("https://w3id.org/ro/crate/1.1"), "about": ref("./")},
		{"@id": "./", "@type": "Dataset", "name": s.Name, "identifier": s.ID, "description": text, "datePublished": ended.UTC().Format(crateTime),
			"conformsTo": ref(crateProfile), "license": ref(p.License), "author": ref(person), "hasPart": compact(parts), "mentions": ref(action)},
		{"@id": crateProfile, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
		{"@id": p.License, "@type": "CreativeWork", "name": p.License, "description": "The license of the dataset", "url": p.License},
		{"@id": person, "@type": "Person", "name": author},
		{"@id": action, "@type": "CreateAction", "name": "Execution of the benchmark " + s.Name, "description": text, "instrument": ref(homepage), "agent": ref(person),
			"startTime": began.UTC().Format(crateTime), "endTime": ended.UTC().Format(crateTime), "object": compact(inputs), "result": compact(results)},
		{"@id": homepage, "@type": "SoftwareApplication", "name": "nixbench", "url": homepage, "version": s.Nixbench},
	}
	return json.MarshalIndent(entity{
		// The context of RO-Crate 1.1 does not define sha256.
		"@context": []any{"https://w3id.org/ro/crate/1.1/context", entity{"sha256": "http://schema.org/sha256"}},
		"@graph":   append(graph, entities...),
	}, "", " ")
}
