# The order of steps. Each is repeated without harm, so that wherever we are stopped,
# the next start goes on.

pass() {
  wait_for_identity
  load_images || return
  if [ ! -e "$memory/joined" ]; then
    case $ROLE in
    control-plane) become_control_plane || return ;;
    *) join_worker || return ;;
    esac
  fi
  if [ "$ROLE" = control-plane ]; then
    place_encryption && settle || return
  fi
  # kubeadm has started it, unless it was stopped in between.
  systemctl start --no-block kubelet.service
  label_node || return
  [ "$ROLE" != control-plane ] || settle_cluster
}

pause=1
until
  : >"$work/output"
  pass
do
  tell failed "$(last_words)"
  sleep "$pause"
  attempt=$((attempt + 1))
  pause=$((pause * 2))
  [ "$pause" -le 30 ] || pause=30
done
# They have the token in them.
rm -f "$work/init.yaml" "$work/join.yaml"
tell ready
