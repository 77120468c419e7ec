# Another version of the control plane, by the kubeadm of the new one.

# Of versions such as 1.35.0-rc.1, which come before 1.35.0.
older() { # THAN
  [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | tr - '~' | sort -V | head -n 1 | tr '~' -)" = "$1" ]
}

minor() { # VERSION
  minor=${1#*.}
  echo "${minor%%.*}"
}

# permitted VERSION: what kubeadm does not do, or nobody can undo, is not begun.
permitted() {
  if older "$VERSION" "$1"; then
    echo "The control plane runs Kubernetes $1, and cannot go back to $VERSION. Set nixbench.kubernetes.package to release $1 or later."
  elif [ $(($(minor "$VERSION") - $(minor "$1"))) -gt 1 ]; then
    echo "The control plane runs Kubernetes $1, and kubeadm goes from one minor release to the next only. Set nixbench.kubernetes.package to release ${1%%.*}.$(($(minor "$1") + 1)) first, and go on from there to $VERSION."
  else
    return 0
  fi >"$work/output"
  return 1
}

# An older system that comes back leaves the control plane as it is.
surpassed() {
  old=$(remembered version) && older "$VERSION" "$old"
}

await_api() {
  end=$(($(date +%s) + 120))
  until kubectl --request-timeout=5s get --raw /readyz >/dev/null 2>"$work/output"; do
    [ "$(date +%s)" -lt "$end" ] || return
    tell upgrade "the API does not answer"
    sleep 1
  done
}

# What kubeadm has changed there comes up on one node after the other. One that lacks the
# image keeps its old rules, and gets it with its own switch, so this is not the place to fail.
await_addons() {
  for addon in daemonset/kube-proxy deployment/coredns; do
    kubectl -n kube-system get "$addon" >/dev/null 2>&1 || continue
    tell upgrade "$addon restarts"
    kubectl -n kube-system rollout status "$addon" --timeout=90s >/dev/null 2>&1 ||
      echo "$addon is not up on every node yet; kubectl -n kube-system get pods -o wide says where."
  done
}

upgrade() {
  old=$(remembered version) || return 0
  [ "$old" != "$VERSION" ] || return 0
  permitted "$old" && admin_here && await_api || return
  running=$(kubectl --request-timeout=10s -n kube-system get configmap kubeadm-config -o 'jsonpath={.data.ClusterConfiguration}' 2>"$work/output" |
    sed -n 's/^kubernetesVersion: v//p') || return
  permitted "$running" || return
  tell upgrade "from $old to $VERSION"
  patches=$(jq -r '.init.patches.directory // ""' "$TEMPLATE") || return
  await_kubelet
  note_static_pods || return
  # Where the cluster has the version already, another control plane was the first; or it
  # was this one, and it was stopped before it was through.
  if [ "$running" != "$VERSION" ] || [ "$(remembered upgrading)" = "$VERSION" ]; then
    remember upgrading "$VERSION" && run timeout -k 10 900 kubeadm upgrade apply --yes --patches "$patches" --kubeconfig "$KUBECONFIG" "v$VERSION" || return
  else
    run timeout -k 10 900 kubeadm upgrade node --patches "$patches" --kubeconfig "$KUBECONFIG" || return
  fi
  await_static_pods || return
  await_addons
  remember version "$VERSION" && rm -f "$memory/upgrading"
}
