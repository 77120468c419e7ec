# upgrade ACTION: upgrade the control plane before anything of the new system runs, while the old kubelet runs: a kubelet
# must not be newer than the API server. If the upgrade fails, the switch does not begin, and the node stays unchanged.
# check ACTION: change nothing; refuse a switch that would start such a kubelet.
missing_key=fail # a wait for a key would not be visible to the user
[ -e "$records/version" ] || exit 0
start_program
version=$(read_record version) || exit 0
[ "$version" != "$VERSION" ] || exit 0
check_version_step "$version" || exit_with_error "$(cat "$work/output")"
case $2 in switch | test) ;; *) exit 0 ;; esac
[ "$1" = upgrade ] ||
  exit_with_error "The control plane runs Kubernetes $version, and this system's kubelet must not start before it is upgraded to $VERSION. nixbench apply upgrades it; without nixbench, run $0 upgrade $2 first."

# Stop nixbench-kubernetes.service of the old system, and wait for the service that renews certificates: both change the same
# files as the upgrade.
unit=nixbench-kubernetes.service
state=$(systemctl show --property=SubState --value "$unit")
[ "$state" = exited ] || systemctl stop "$unit"
exec 9>"$records/lock"
tries=0
until flock -w 4 9; do
  echo "waiting for nixbench-kubernetes-certificates.service"
  tries=$((tries + 1))
  [ "$tries" -ge 150 ] || continue
  [ "$state" = exited ] || systemctl start --no-block "$unit"
  exit_with_error "nixbench-kubernetes-certificates.service has run for ten minutes; see journalctl -u nixbench-kubernetes-certificates"
done

# kubeadm writes manifests for the settings that the cluster has now, so first install the files that the manifests name. Print a
# line regularly during the upgrade, because nixbench takes silence for a program that hangs.
wait_for_identity
(install_ca_bundle && install_audit_policy && install_encryption_config && load_images && upgrade_control_plane) &
child=$!
seconds=0
while kill -0 "$child" 2>/dev/null; do
  sleep 1
  seconds=$((seconds + 1))
  [ $((seconds % 4)) != 0 ] || echo "the control plane goes from Kubernetes $version to $VERSION ($seconds s)"
done
if ! wait "$child"; then
  echo "The control plane could not go from Kubernetes $version to $VERSION: $(summarize_output)" >&2
  systemctl restart --no-block "$unit"
  exit 1
fi
[ "$state" = exited ] || systemctl start --no-block "$unit"
