# shellcheck shell=bash
# How to download Debian packages from the mirror of this machine's apt.

# debian_mirror prints the URL of the Debian mirror that this machine's apt uses.
debian_mirror() {
  apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "Debian" && $2 == "main" { print $3; exit }'
}

# apt_options prints options of mmdebstrap with this machine's settings of apt: a proxy,
# certificates, and whether release files are checked against the clock.
apt_options() {
  apt-config dump | grep -E '^Acquire::(http|https|Retries|Check-|ForceIPv)' |
    grep -v ' "";$' | sed 's/^/--aptopt=/'
}
