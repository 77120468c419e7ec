# shellcheck shell=bash disable=SC2154,SC2034
# The machines: who they are, decided before anything runs, so that tests can
# pin host keys and addresses before first contact.

# Not the network that nixbench itself makes by default: tests have both.
subnet=192.168.77
network=nixbench-lab

# write_machines COUNT fills machines.table (name, address, MAC, disk), keys, and
# what is put on each machine's disk.
write_machines() {
  local count=$1 list=() i machine disk mac key
  IFS=, read -r -a list <<< "$names"
  [ ${#list[@]} -eq 0 ] || [ ${#list[@]} -eq "$count" ] || die "--names has ${#list[@]} names for $count machines"

  ssh-keygen -q -t ed25519 -N '' -C nixbench-lab -f "$lab_dir/id_ed25519"
  : > "$lab_dir/machines.table"
  : > "$lab_dir/known_hosts"
  for ((i = 1; i <= count; i++)); do
    machine=${list[i - 1]:-m$i}
    [[ $machine =~ ^[a-z]([a-z0-9-]{0,40}[a-z0-9])?$ ]] || die "not a machine name: $machine"
    mac=$(printf '52:54:00:%02x:%02x:%02x' 77 0 $((9 + i)))
    disk=$(disk_of "$machine")
    echo "$machine $subnet.$((9 + i)) $mac $disk" >> "$lab_dir/machines.table"
    write_files "$machine" "$lab_dir/machines/$machine/files"
    read -r _ key _ < "$lab_dir/machines/$machine/files/etc/ssh/ssh_host_ed25519_key.pub"
    echo "$machine,$subnet.$((9 + i)) ssh-ed25519 $key" >> "$lab_dir/known_hosts"
  done
  write_ssh_config
  for disk in ${disks[@]+"${disks[@]}"}; do
    [ -d "$lab_dir/machines/${disk%%=*}" ] || die "--disk $disk: there is no such machine"
  done
}

# write_ssh_config lets any client that reads OpenSSH's settings reach the
# machines by name, with pinned host keys, without asking and without anybody
# else's settings.
write_ssh_config() {
  local machine ip
  while read -r machine ip _; do
    printf 'Host %s\n  HostName %s\n\n' "$machine" "$ip"
  done < "$lab_dir/machines.table" > "$lab_dir/ssh_config"
  cat >> "$lab_dir/ssh_config" <<EOF
Host *
  # The usual key exchange, safe from quantum computers, is half of a login's time.
  KexAlgorithms curve25519-sha256
  User root
  IdentityFile $lab_dir/id_ed25519
  IdentitiesOnly yes
  BatchMode yes
  StrictHostKeyChecking yes
  UserKnownHostsFile $lab_dir/known_hosts
  GlobalKnownHostsFile /dev/null
  LogLevel ERROR
EOF
}

disk_of() {
  local disk found=-
  for disk in ${disks[@]+"${disks[@]}"}; do
    [[ $disk =~ ^[a-z0-9-]+=[1-9][0-9]*[MG]$ ]] || die "--disk wants MACHINE=SIZE with M or G, not $disk"
    [ "${disk%%=*}" != "$1" ] || found=${disk#*=}
  done
  echo "$found"
}

# write_files: what differs between machines. Modes count: the folders are merged
# over the image's.
write_files() {
  local machine=$1 files=$2 user volume
  (
    umask 022
    mkdir -p "$files/etc/ssh/authorized_keys.d"
    echo "$machine" > "$files/etc/hostname"
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$machine" > "$files/etc/hosts"
    # dnsmasq knows the machines' names, and nothing else.
    printf 'nameserver %s.1\nsearch lab\n' "$subnet" > "$files/etc/resolv.conf"
    for user in root deploy askpass; do
      cp "$lab_dir/id_ed25519.pub" "$files/etc/ssh/authorized_keys.d/$user"
    done
    ssh-keygen -q -t ed25519 -N '' -C "$machine" -f "$files/etc/ssh/ssh_host_ed25519_key"
    for volume in ${volumes[@]+"${volumes[@]}"}; do
      mkdir -p "$files$volume" "$lab_dir/machines/$machine/volumes$volume"
    done
  )
}

# lab_network: the lab has a network of its own. An empty hypervisor has none.
lab_network() { [ -z "$hypervisor" ] || [ -s "$lab_dir/machines.table" ]; }

network_xml() {
  local machine ip mac
  cat <<EOF
<network xmlns:dnsmasq='http://libvirt.org/schemas/network/dnsmasq/1.0'>
  <name>$network</name>
  <forward mode='nat'/>
  <bridge name='virlab0' stp='off' delay='0'/>
  <domain name='lab' localOnly='yes'/>
  <ip address='$subnet.1' netmask='255.255.255.0'>
    <dhcp>
      <range start='$subnet.10' end='$subnet.250'/>
EOF
  while read -r machine ip mac _; do
    echo "      <host mac='$mac' name='$machine' ip='$ip'/>"
  done < "$lab_dir/machines.table"
  # no-ping: otherwise each new address is pinged for three seconds first.
  # no-resolv: the lab's name server asks nobody.
  cat <<EOF
    </dhcp>
  </ip>
  <dnsmasq:options>
    <dnsmasq:option value='no-ping'/>
    <dnsmasq:option value='no-resolv'/>
  </dnsmasq:options>
</network>
EOF
}

# domain_xml MACHINE MAC. On reboot libvirt starts the machine again, with the
# same disk, which stays mounted meanwhile.
domain_xml() {
  local at=$lab_dir/machines/$1 volume
  cat <<EOF
<domain type='lxc'>
  <name>$1</name>
  <memory unit='MiB'>$memory</memory>
  <vcpu>1</vcpu>
  <os><type arch='$(uname -m)'>exe</type><init>/usr/sbin/lab-init</init>
      ${kubernetes:+<initenv name='NIXBENCH_LAB_KUBERNETES'>yes</initenv>}</os>
  <features><capabilities policy='$capabilities'/></features>
  <clock offset='utc'/>
  <on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/lib/libvirt/libvirt_lxc</emulator>
    <filesystem type='mount' accessmode='passthrough'><source dir='$at/root'/><target dir='/'/></filesystem>
EOF
  for volume in ${volumes[@]+"${volumes[@]}"}; do
    echo "    <filesystem type='mount' accessmode='passthrough'><source dir='$at/volumes$volume'/><target dir='$volume'/></filesystem>"
  done
  [ -z "$kubernetes" ] ||
    echo "    <hostdev mode='capabilities' type='misc'><source><char>/dev/kmsg</char></source></hostdev>"
  cat <<EOF
    <interface type='network'><mac address='$2'/><source network='$network'/><guest dev='eth0'/></interface>
    <console type='pty'/>
  </devices>
</domain>
EOF
}

# machines_json: lab.json, what the Go package reads. Every value is of letters,
# digits and a few signs that JSON does not mind.
machines_json() {
  local machine ip mac disk key comma=''
  printf '{\n  "version": 1,\n  "name": "%s",\n  "dir": "%s",\n  "pid": %s,\n' "$name" "$lab_dir" "$(world_pid)"
  printf '  "uris": {"lxc": "%s", "qemu": "%s"},\n' "$(libvirt_uri lxc)" "$(libvirt_uri qemu)"
  [ -z "$hypervisor" ] || printf '  "poolPath": "%s",\n' "$lab_dir/pool"
  ! lab_network || printf '  "network": "%s",\n  "subnet": "%s.0/24",\n' "$network" "$subnet"
  printf '  "keyFile": "%s",\n  "knownHosts": "%s",\n  "sshConfig": "%s",\n  "machines": [' \
    "$lab_dir/id_ed25519" "$lab_dir/known_hosts" "$lab_dir/ssh_config"
  while read -r machine ip mac disk; do
    read -r _ key _ < "$lab_dir/machines/$machine/files/etc/ssh/ssh_host_ed25519_key.pub"
    [ "$disk" != - ] || disk=''
    printf '%s\n    {"name": "%s", "ip": "%s", "mac": "%s", "disk": "%s", "hostKey": "ssh-ed25519 %s"}' \
      "$comma" "$machine" "$ip" "$mac" "$disk" "$key"
    comma=,
  done < "$lab_dir/machines.table"
  printf '\n  ]\n}\n'
}
