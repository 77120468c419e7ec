package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

const (
	supportUnits = 10               // failed units per node whose journals are collected
	supportLimit = 20 * time.Second // time limit of the journals of a node
)

// addJournals adds the journals of failed units, which are given by node. It reads those of up to parallel nodes at once, and those of
// one node within limit.
func (b *supportBundle) addJournals(ctx context.Context, nodes []nixeval.Node, failed map[string][]string, parallel int, limit time.Duration, read func(ctx context.Context, node, unit string) ([]byte, error)) {
	for _, o := range fleet.Each(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var texts []string
		for _, unit := range firstUnits(failed[n.Name]) {
			text, err := read(ctx, n.Name, unit)
			texts = append(texts, orError(string(text), err))
		}
		return texts, nil
	}) {
		for i, text := range o.Value {
			b.addText("journals/"+o.Node.Name+"/"+filepath.Base(failed[o.Node.Name][i])+".txt", text)
		}
	}
}

func firstUnits(units []string) []string { return units[:min(supportUnits, len(units))] }
