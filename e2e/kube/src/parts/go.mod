module nixbench.invalid/kube/parts

go 1.24
