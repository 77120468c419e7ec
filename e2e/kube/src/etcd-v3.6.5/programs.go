// This file keeps the modules of the programs in go.mod. It is never built itself.

//go:build programs

package programs

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/server/v3"
)
