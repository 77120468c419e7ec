package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// bom is an SBOM in the format CycloneDX 1.5, with the fields that a Go program has.
type bom struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Purl       string     `json:"purl"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// sbom returns the SBOM of a program: the modules that Go has linked into it, with their checksums in go.sum.
func (s *source) sbom(program string, content []byte) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read the modules of %s: %w", program, err)
	}
	sum := sha256.Sum256(content)
	main := module(info.Main.Path, s.version)
	main.Type = "application"
	main.Hashes = []hash{{"SHA-256", fmt.Sprintf("%x", sum)}}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "CGO_ENABLED", "GOOS", "GOARCH", "-trimpath":
			main.Properties = append(main.Properties, property{"go:build:" + setting.Key, setting.Value})
		}
	}
	b := bom{Format: "CycloneDX", SpecVersion: "1.5", Version: 1, SerialNumber: serialNumber(sum),
		Metadata:   metadata{s.time.Format("2006-01-02T15:04:05Z"), main},
		Components: []component{module("std", strings.TrimPrefix(info.GoVersion, "go"))}}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		c := module(dep.Path, dep.Version)
		if dep.Sum != "" {
			c.Properties = []property{{"go:sum", dep.Sum}}
		}
		b.Components = append(b.Components, c)
	}
	all := dependency{Ref: main.Ref}
	for _, c := range b.Components {
		all.DependsOn = append(all.DependsOn, c.Ref)
	}
	b.Dependencies = []dependency{all}
	data, err := json.MarshalIndent(b, "", "  ")
	return append(data, '\n'), err
}

// module returns the component of a Go module.
func module(path, version string) component {
	purl := "pkg:golang/" + strings.ToLower(path) + "@" + url.PathEscape(version)
	return component{Type: "library", Ref: purl, Name: path, Version: version, Purl: purl}
}

// serialNumber returns a UUID that depends only on the program, so that two builds have the same SBOM.
func serialNumber(sum [32]byte) string {
	u := sum[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80 // version 8: an own scheme
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
