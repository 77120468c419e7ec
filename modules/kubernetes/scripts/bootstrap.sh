# Make the node a member of the cluster, and later apply changed settings. All steps can be repeated, so the next start of this
# program continues wherever an earlier start was interrupted.
start_program

# enable_forwarding: set the sysctls of a container's own network, because systemd does not set them in a container.
enable_forwarding() {
  local name file
  for name in ipv4/ip_forward bridge/bridge-nf-call-iptables bridge/bridge-nf-call-ip6tables; do
    file=/proc/sys/net/$name
    # A failure is ignored: some kernels do not allow the change in a container. kubeadm's preflight checks report values that
    # matter.
    [ ! -e "$file" ] || [ "$(cat "$file")" = 1 ] || echo 1 >"$file" || :
  done
}

run_steps() {
  local reconciles=
  wait_for_identity
  enable_forwarding
  [ "$ROLE" != control-plane ] || { install_ca_bundle && install_audit_policy; } || return
  load_images || return
  if [ ! -e "$records/joined" ]; then
    case $ROLE in
    control-plane) create_or_join_control_plane || return ;;
    *) join_worker || return ;;
    esac
  fi
  if [ "$ROLE" = control-plane ]; then
    if runs_newer_version; then
      restore_static_pods
    else
      reconciles=yes
      install_encryption_config && reconcile_node || return
    fi
  fi
  # Start the kubelet, in case kubeadm was interrupted before it did this.
  systemctl start --no-block kubelet.service
  [ -z "$reconciles" ] || wait_for_static_pods || return
  annotate_cri_socket || return
  [ -z "$reconciles" ] || reconcile_cluster
}

# with_lock COMMAND runs a command while it holds the lock. The lock excludes nixbench-kubernetes-certificates.service, because
# both services restart static pods.
exec 9>"$records/lock"
with_lock() {
  flock 9
  "$@"
  set -- "$?"
  flock -u 9
  return "$1"
}

# Waits, such as for an API server that does not answer yet, have no time limit and are no failures. Failed attempts are repeated
# for RETRY_FOR seconds. Then the systemd unit fails, so that the user sees the failure.
pause=1 first_failure=
until
  : >"$work/output"
  with_lock run_steps
do
  now=$(date +%s)
  first_failure=${first_failure:-$now}
  if [ "$attempt" -ge 5 ] && [ $((now - first_failure)) -ge "$RETRY_FOR" ]; then
    report_phase failed "gave up after $attempt attempts: $(summarize_output)"
    echo "Correct the cause, then deploy the node again or run: systemctl restart nixbench-kubernetes" >&2
    exit 69 # EX_UNAVAILABLE; systemd does not restart the unit after this exit status
  fi
  report_phase failed "$(summarize_output)"
  sleep "$pause"
  attempt=$((attempt + 1))
  pause=$((pause * 2))
  [ "$pause" -le 30 ] || pause=30
done
rm -f "$work/init.yaml" "$work/join.yaml" "$work/join.conf" "$JOIN_CONFIG" # they contain the credentials to join
report_phase ready "$([ "$ROLE" != control-plane ] || ! runs_newer_version || echo "the control plane stays at $(read_record version), which is newer than this system's $VERSION")"
