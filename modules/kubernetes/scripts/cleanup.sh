# End the containers of the control plane and of pods. The container runtime does not end them, because it no longer runs.
end_processes 3 cgroup_processes kubepods.slice 'system.slice/crio-*.scope'
# End the process that containerd runs for each pod of Kubernetes. The same processes of other users of containerd have another
# working directory.
end_processes 0 processes_in /run/containerd/io.containerd.runtime.v2.task/k8s.io system.slice/containerd.service
end_processes 0 cgroup_processes system.slice/kubelet.service
stop_slice kubepods.slice
for unit in containerd.service crio.service kubelet.service; do remove_unit_cgroup "$unit"; done

unmount_all '^/(var/lib/kubelet/(pods|plugins)/|run/containerd/io\.containerd\.(runtime\.v2\.task/k8s\.io|grpc\.v1\.cri)/|(run|var/lib)/containers/storage/)'
# Delete the network namespaces of pods. containerd names them cni-UUID, and CRI-O names them UUID.
delete_network_namespaces 'cni-*' '????????-????-????-????-????????????'
delete_interface cni0 flannel.1 flannel-v6.1 kube-ipvs0
delete_routes "$POD_CIDR"
delete_firewall_rules 'KUBE-|CNI-|FLANNEL-' 'nixbench(-services|: pods leave as their node|: until the API is back)'
