# ACTION: the control plane gets its new version before anything of the new system runs. The
# kubelet comes with the switch, and must not be newer than the API; and where an upgrade
# fails, the switch is refused, and the node stays as it was.
old=$(remembered version) || exit 0
[ "$old" != "$VERSION" ] || exit 0
if ! permitted "$old"; then
  cat "$work/output" >&2
  exit 1
fi
case $1 in switch | test) ;; *) exit 0 ;; esac

# The unit of the old system must not be at work on the same files.
unit=nixbench-kubernetes.service
idle=$(systemctl show --property=SubState --value "$unit")
[ "$idle" = exited ] || systemctl stop "$unit"
# Nor the one that renews certificates.
exec 9>"$memory/lock"
tries=0
until flock -w 4 9; do
  echo "nixbench-kubernetes-certificates.service is at work, and waited for"
  tries=$((tries + 1))
  [ "$tries" -ge 150 ] || continue
  [ "$idle" = exited ] || systemctl start --no-block "$unit"
  echo "nixbench-kubernetes-certificates.service is at work for ten minutes; journalctl -u nixbench-kubernetes-certificates says on what." >&2
  exit 1
done

# Nobody would see what we wait for.
wait_for() { # FILE WHAT
  [ -s "$1" ] || {
    echo "The $2 is not in $1." >"$work/output"
    exit 1
  }
}

# kubeadm writes manifests for the settings that the first control plane has by now, so what
# these name has to be there. Programs take their time to restart, and whoever follows a switch
# takes silence for a hang.
wait_for_identity
(place_authorities && place_audit_policy && place_encryption && load_images && upgrade) &
child=$!
beat=0
while kill -0 "$child" 2>/dev/null; do
  sleep 1
  beat=$((beat + 1))
  [ $((beat % 4)) != 0 ] || echo "the control plane goes from Kubernetes $old to $VERSION ($beat s)"
done
if ! wait "$child"; then
  echo "The control plane could not go from Kubernetes $old to $VERSION: $(last_words)" >&2
  systemctl restart --no-block "$unit"
  exit 1
fi
[ "$idle" = exited ] || systemctl start --no-block "$unit"
