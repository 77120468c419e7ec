// Keeps in go.mod what the programs need that are built from here; itself it is never
// built.

//go:build programs

package programs

import (
	_ "github.com/containernetworking/plugins/plugins/meta/flannel"
)
