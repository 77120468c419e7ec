# Upgrade the control plane on this node to the version of this system, by this system's kubeadm.

# is_older A B: compare versions. A pre-release such as 1.35.0-rc.1 is older than 1.35.0.
is_older() {
  [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | tr - '~' | sort -V | head -n 1 | tr '~' -)" = "$1" ]
}

minor_of() { # VERSION
  local rest=${1#*.}
  echo "${rest%%.*}"
}

# check_version_step VERSION: fail, with the reason in the output, if kubeadm cannot go from VERSION to this
# system's version: a downgrade, or a step of more than one minor release. It changes nothing.
check_version_step() {
  if is_older "$VERSION" "$1"; then
    set_output "The control plane runs Kubernetes $1, and cannot go back to $VERSION. Set nixbench.kubernetes.package to release $1 or later."
  elif [ $(($(minor_of "$VERSION") - $(minor_of "$1"))) -gt 1 ]; then
    set_output "The control plane runs Kubernetes $1, and kubeadm goes from one minor release to the next only. Set nixbench.kubernetes.package to release ${1%%.*}.$(($(minor_of "$1") + 1)) first, and go on from there to $VERSION."
  else
    return 0
  fi
  return 1
}

# runs_newer_version reports whether the control plane is newer than this system, for example after a rollback. Then this system
# leaves the manifests of the control plane unchanged.
runs_newer_version() {
  local version
  version=$(read_record version) && is_older "$VERSION" "$version"
}

wait_for_local_api() {
  local end=$(($(date +%s) + 120))
  until kubectl --request-timeout=5s get --raw /readyz >/dev/null 2>"$work/output"; do
    [ "$(date +%s)" -lt "$end" ] || return
    report_phase upgrade "the API does not answer"
    sleep 1
  done
}

# wait_for_addons: wait until kube-proxy and CoreDNS, which kubeadm has changed, have restarted node by node. If they do not
# restart, that is no failure of the upgrade: a node without the new image keeps its old rules until its own switch loads the
# image.
wait_for_addons() {
  local addon
  for addon in daemonset/kube-proxy deployment/coredns; do
    kubectl -n kube-system get "$addon" >/dev/null 2>&1 || continue
    report_phase upgrade "$addon restarts"
    kubectl -n kube-system rollout status "$addon" --timeout=90s >/dev/null 2>&1 ||
      echo "$addon does not run on all nodes yet; see kubectl -n kube-system get pods -o wide"
  done
}

# upgrade_control_plane: upgrade if this node's control plane has another version. The kubelet must run.
upgrade_control_plane() {
  local version cluster_version patches
  version=$(read_record version) || return 0
  [ "$version" != "$VERSION" ] || return 0
  check_version_step "$version" && use_admin_kubeconfig && wait_for_local_api || return
  cluster_version=$(kubectl --request-timeout=10s -n kube-system get configmap kubeadm-config -o 'jsonpath={.data.ClusterConfiguration}' 2>"$work/output" |
    sed -n 's/^kubernetesVersion: v//p') || return
  check_version_step "$cluster_version" || return
  report_phase upgrade "from $version to $VERSION"
  patches=$(jq -r '.init.patches.directory // ""' "$TEMPLATE") || return
  wait_for_kubelet_start
  record_manifest_sums || return
  # The first control plane runs `upgrade apply`, which sets the version of the cluster. The other control planes run `upgrade
  # node`. The record `upgrading` marks a node on which `upgrade apply` was interrupted.
  if [ "$cluster_version" != "$VERSION" ] || [ "$(read_record upgrading)" = "$VERSION" ]; then
    write_record upgrading "$VERSION" &&
      run_logged timeout -k 10 900 kubeadm upgrade apply --yes --patches "$patches" --kubeconfig "$KUBECONFIG" "v$VERSION" || return
  else
    run_logged timeout -k 10 900 kubeadm upgrade node --patches "$patches" --kubeconfig "$KUBECONFIG" || return
  fi
  wait_for_static_pods || return
  wait_for_addons
  write_record version "$VERSION" && rm -f "$records/upgrading"
}
