# shellcheck shell=bash
# Debian, from where this machine itself gets it.

# debian_mirror prints where this machine's own apt gets Debian from.
debian_mirror() {
  apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "Debian" && $2 == "main" { print $3; exit }'
}

# apt_options passes on how this machine's apt reaches its mirror: a proxy,
# certificates, and whether it trusts the clock.
apt_options() {
  apt-config dump | grep -E '^Acquire::(http|https|Retries|Check-|ForceIPv)' |
    grep -v ' "";$' | sed 's/^/--aptopt=/'
}
