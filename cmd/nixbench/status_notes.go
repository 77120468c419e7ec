package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/inspect"
)

// describeStatus returns notes about a node that do not fit into the columns of the table.
func describeStatus(s inspect.Status) []string {
	var notes []string
	if s.Error != "" {
		return nil // no notes about a node that cannot be reached, because the command ends with its error
	}
	switch s.System {
	case inspect.OtherSystem:
		notes = append(notes, "runs "+s.Current, "last deployed: "+s.Deployed)
	case inspect.Drifted:
		notes = append(notes, "runs "+s.Current, "the hive has "+s.Wanted)
	}
	if s.LastRun != nil && s.LastRun.Alive {
		notes = append(notes, s.LastRun.Text)
	}
	if len(s.FailedUnits) > 0 {
		notes = append(notes, "failed units: "+strings.Join(s.FailedUnits, ", "))
		for _, unit := range slices.Sorted(maps.Keys(s.Reasons)) {
			notes = append(notes, unit+": "+s.Reasons[unit])
		}
	}
	return notes
}

// describeReboots returns a note about the nodes that need a reboot, or an empty string.
func describeReboots(rows []inspect.Status) string {
	var nodes []string
	for _, s := range rows {
		if s.Reboot {
			nodes = append(nodes, s.Node)
		}
	}
	if len(nodes) == 0 {
		return ""
	}
	return strings.Join(nodes, ", ") + ": the next boot uses another kernel: nixbench reboot --if-needed"
}

const (
	renewalNotice   = 30 * 24 * time.Hour  // how long before its end status reports a certificate that is not renewed by itself
	authorityNotice = 365 * 24 * time.Hour // how long before its end status reports an authority, whose replacement takes long
	renewalGrace    = 3 * 24 * time.Hour   // how long the renewal of a certificate may be overdue before status reports the certificate
)

// describeCertificates returns notes about certificates. The first is about the certificate that expires first: it is returned if
// the user has to renew this certificate, or if always is set. Then comes a note for each certificate authority that expires
// within authorityNotice.
func describeCertificates(rows []inspect.Status, now time.Time, always bool) []string {
	var node string
	var first engine.Certificate
	var notes, authorities []string
	for _, s := range rows {
		for _, c := range s.Certificates {
			switch {
			case !c.Authority && (node == "" || c.Ends.Before(first.Ends)):
				node, first = s.Node, c
			case c.Authority && c.Ends.Sub(now) < authorityNotice:
				// All nodes have the same authorities, so report each authority once.
				note := fmt.Sprintf("authorities: %s expires on %s, and the cluster stops working then; nothing renews it: %s", c.Name, c.Ends.Format(time.DateOnly), c.Remedy)
				if !slices.Contains(authorities, note) {
					authorities = append(authorities, note)
				}
			}
		}
	}
	if node != "" {
		if note := describeFirstExpiry(node, first, now); note != "" {
			notes = append(notes, note)
		} else if always {
			renewed := ""
			if first.Renewer != "" {
				renewed = ", renewed automatically"
			}
			notes = append(notes, fmt.Sprintf("certificates: all valid; the first expires %s (%s%s)", first.Ends.Format(time.DateOnly), node, renewed))
		}
	}
	return append(notes, authorities...)
}

// describeFirstExpiry returns a note about c, the certificate that expires first. It returns an empty string if the user does not
// have to do anything about c yet.
func describeFirstExpiry(node string, c engine.Certificate, now time.Time) string {
	left := c.Ends.Sub(now)
	text := fmt.Sprintf("certificates: %s of %s expires on %s", c.Name, node, c.Ends.Format(time.DateOnly))
	switch {
	case left < 0:
		text = fmt.Sprintf("certificates: %s of %s expired on %s", c.Name, node, c.Ends.Format(time.DateOnly))
	case left < renewalNotice:
		text += ", in " + formatShortDuration(left)
	}
	switch {
	case c.Renewer != "" && now.After(c.Due.Add(renewalGrace)):
		return fmt.Sprintf("%s; its renewal was due on %s: on that node, journalctl -u %s", text, c.Due.Format(time.DateOnly), c.Renewer)
	case c.Renewer == "" && left < renewalNotice:
		return text + "; nothing renews it: " + c.Remedy
	}
	if left < 0 {
		return text
	}
	return ""
}
