# shellcheck shell=bash
# Functions that compare what reaches the node before a switch and after its rollback, and restore it. A unit of the new
# system may have stopped sshd, taken an interface down or added a rule to the firewall: the activation of the old system does
# not undo this.

# findClient sets $client to the addresses and ports of the SSH connection over which this command runs, as in SSH_CONNECTION:
# CLIENT PORT NODE PORT. sudo removes this variable, so findClient also reads the environments of the parent processes.
findClient() {
  local process=$PPID line
  client=${SSH_CONNECTION:-}
  while [ -z "$client" ] && [ "$process" -gt 1 ]; do
    while IFS= read -r -d '' line; do
      case $line in SSH_CONNECTION=*) client=${line#*=} ;; esac
    done <"/proc/$process/environ"
    read -r line <"/proc/$process/stat" || return 0
    read -r _ process _ <<<"${line##*) }"
  done 2>/dev/null
}

# readReach sets $reach to three texts. The first says whether a process listens on the port of sshd to which the client has
# connected. The second says whether there is a route to the client, and contains the default routes. The third contains the rules
# of the firewall without their counters; only this text needs a program.
readReach() {
  local port line lines='' chain='' family='' addresses device to gateway length none=00000000
  read -ra addresses <<<"$client"
  case $client in *:*) family=6 ;; esac
  printf -v port %04X "${addresses[3]}"
  reach=('' '' '')
  for line in tcp tcp6; do
    read -r -N 65536 lines <"/proc/net/$line" # the sockets that listen, without an address of a peer, are the first
    case $lines in *":$port $none:0000 0A "* | *":$port $none$none$none$none:0000 0A "*) reach[0]=yes && break ;; esac
  done
  if true <>"/dev/udp/${addresses[0]}/9"; then reach[1]=yes; fi # connects a socket, and sends no packet
  while read -r device to gateway _; do
    [ "$to" != 00000000 ] || reach[1]+=" $device $gateway"
  done </proc/net/route
  while read -r to length _ _ gateway _ _ _ _ device; do
    case $to:$length in *[!0:]*) ;; *) reach[1]+=" $device $gateway" ;; esac
  done </proc/net/ipv6_route
  # Leave out the chains of Kubernetes and of its network, which change at any time. nft prints a chain on several lines.
  splitLines "$(if command -v nft >&2; then nft --stateless list ruleset; else "ip${family}tables-save" -t filter; fi 2>/dev/null)"
  for line in "${lines[@]}"; do
    case $line in *'chain '*) chain=$line ;; esac
    case $chain$line in '#'* | *KUBE-* | *CNI-* | *FLANNEL-*) ;; *) reach[2]+=${line%% \[*}$'\n' ;; esac
  done
} 2>/dev/null

# noteReach records how clients reach the node now: the port of sshd, the routes, and the rules of the firewall. It also records
# which of the active systemd units (UNIT…) provide them. If this command does not run over SSH, it records nothing.
noteReach() { # UNIT…
  local unit units=('' '' '')
  : >"$live/reach"
  case $client in *\ *\ *\ *) ;; *) return 0 ;; esac
  for unit; do
    case $unit in
    ssh.service | sshd.service | ssh.socket | sshd.socket) units[0]+=" $unit" ;;
    systemd-networkd.service | NetworkManager.service | dhcpcd.service | network-*.service | *-netdev.service) units[1]+=" $unit" ;;
    firewall.service | nftables.service) units[2]+=" $unit" ;;
    esac
  done
  readReach
  printf '%s\0' "${units[@]}" "${reach[@]}" >"$live/reach"
}

# isReached reports whether the port of sshd, the routes and the firewall are still as noteReach has recorded them. If not, it
# sets $lost to the names of what differs, and $owners to the systemd units that provide it.
isReached() {
  local noted=() what=('sshd' 'the route to the client' 'the rules of the firewall') i
  mapfile -d '' -t noted <"$live/reach"
  lost='' owners=''
  [ ${#noted[@]} = 6 ] || return 0
  readReach
  for i in 0 1 2; do
    [ "${reach[i]}" = "${noted[i + 3]}" ] || lost+=", ${what[i]}" owners+=${noted[i]}
  done
  lost=${lost#, }
  [ -z "$lost" ]
} 2>/dev/null

# awaitReach waits until isReached succeeds (sshd, routes and firewall are as before the switch) or a client logs in, for at most
# SECONDS.
awaitReach() { # SECONDS
  ! isReached || return 0
  phase=returned
  now
  deadline=$((now + $1))
  save || :
  until isAnswered confirm-return || isReached; do
    now
    [ "$now" -lt "$deadline" ] || return
    pause 0.3
  done
}

# restoreReach is called after a rollback. If sshd, the routes or the firewall differ from the state before the switch, and no
# client logs in, it restarts the systemd units that provide them. If this does not help, it reboots the node into its boot
# default, which is the previous system. The run ends with the request to reboot, so there is only one reboot. $restored says what
# differed, and what the node did.
restoreReach() {
  [ -s "$live/reach" ] && ! awaitReach 5 || return 0
  restored=$lost
  if [ -n "$owners" ]; then
    echo "the rollback did not restore $lost: restarting$owners" >>"$live/log"
    restored+=", so the node restarted$owners"
    # shellcheck disable=SC2086
    timeout 60 systemctl restart $owners >>"$live/log" 2>&1 </dev/null
  fi
  ! awaitReach 15 || return 0
  echo "the rollback did not restore $lost: rebooting" >>"$live/log"
  rebootSoon && restored+=", and rebooted because no client could log in"
}

# rebootSoon reboots the node after half a second, so that the calling command can end before.
rebootSoon() { systemd-run --quiet --collect --no-ask-password --on-active=500ms --timer-property=AccuracySec=10ms systemctl reboot; }
