# The order of steps. Each is repeated without harm, so that wherever we are stopped,
# the next start goes on.

# In a container nobody may apply sysctls, but those of its own network are its own.
forward() {
  for name in ipv4/ip_forward bridge/bridge-nf-call-iptables bridge/bridge-nf-call-ip6tables; do
    file=/proc/sys/net/$name
    [ ! -e "$file" ] || [ "$(cat "$file")" = 1 ] || echo 1 >"$file" || :
  done
}

pass() {
  wait_for_identity
  forward
  [ "$ROLE" != control-plane ] || { place_authorities && place_audit_policy; } || return
  load_images || return
  if [ ! -e "$memory/joined" ]; then
    case $ROLE in
    control-plane) become_control_plane || return ;;
    *) join_worker || return ;;
    esac
  fi
  settling=
  if [ "$ROLE" = control-plane ]; then
    if surpassed; then
      restore_static_pods
    else
      settling=yes
      place_encryption && settle || return
    fi
  fi
  # kubeadm has started it, unless it was stopped in between.
  systemctl start --no-block kubelet.service
  [ -z "$settling" ] || await_static_pods || return
  note_socket || return
  [ -z "$settling" ] || settle_cluster
}

# The unit that renews certificates restarts what we wait for, so one waits for the other.
exec 9>"$memory/lock"
alone() {
  flock 9
  "$@"
  set -- "$?"
  flock -u 9
  return "$1"
}

pause=1
until
  : >"$work/output"
  alone pass
do
  tell failed "$(last_words)"
  sleep "$pause"
  attempt=$((attempt + 1))
  pause=$((pause * 2))
  [ "$pause" -le 30 ] || pause=30
done
# They have the token in them.
rm -f "$work/init.yaml" "$work/join.yaml"
tell ready "$([ "$ROLE" != control-plane ] || ! surpassed || echo "the control plane stays at $(remembered version), which is newer than this system's $VERSION")"
