# shellcheck shell=bash disable=SC2154,SC2034
# The machines' names, addresses and keys. They are decided before a machine starts, so that
# tests can pin host keys and addresses before the first connection.

# Other than nixbench's default network, because tests use both at the same time.
subnet=192.168.77
network=nixbench-lab

# write_machines COUNT writes machines.table (name, address, MAC, disk), the keys, and the
# files of each machine's disk.
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

# write_ssh_config writes an OpenSSH configuration with the machines' names and pinned host
# keys. Clients with this configuration ask no questions, and use no other settings.
write_ssh_config() {
  local machine ip
  while read -r machine ip _; do
    printf 'Host %s\n  HostName %s\n\n' "$machine" "$ip"
  done < "$lab_dir/machines.table" > "$lab_dir/ssh_config"
  cat >> "$lab_dir/ssh_config" <<EOF
Host *
  # The default post-quantum key exchange would take half of a login's time.
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
    [[ $disk =~ ^[a-z0-9-]+=[1-9][0-9]*[MG]$ ]] || die "--disk: expected MACHINE=SIZE with M or G, not $disk"
    [ "${disk%%=*}" != "$1" ] || found=${disk#*=}
  done
  echo "$found"
}

# write_files MACHINE FOLDER writes the files that differ between machines. The folder is
# merged over the image, so the modes of its subfolders matter.
write_files() {
  local machine=$1 files=$2 user volume
  (
    umask 022
    mkdir -p "$files/etc/ssh/authorized_keys.d"
    echo "$machine" > "$files/etc/hostname"
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$machine" > "$files/etc/hosts"
    # dnsmasq resolves only the machines' names.
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

# lab_network succeeds if the lab has a network of its own. An empty hypervisor has none.
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
  # no-ping: otherwise dnsmasq pings each new address for three seconds first.
  # no-resolv: dnsmasq forwards no queries.
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

# domain_xml MACHINE MAC prints the domain. On reboot libvirt starts the machine again with
# the same disk, which stays mounted during the reboot.
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

# machines_json prints lab.json, which the Go package reads. No value contains a character
# that JSON would have to quote.
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
