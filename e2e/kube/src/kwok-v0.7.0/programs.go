// This file keeps the modules of the programs in go.mod. It is never built itself.

//go:build programs

package programs

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
