package kubernetes

// cisItem is one item of the CIS Kubernetes Benchmark v1.10, and how a running cluster shows
// whether it holds. docs/security.md has the items that do not hold.
type cisItem struct {
	id string
	// check runs on a node, with the functions of cisFunctions. It prints what it found, and
	// succeeds where the item holds.
	check string
	// found is what it prints where the item does not hold; "" means that the item holds.
	found string
	// option is the option of nixbench.kubernetes without which the item does not hold.
	option string
}

// cisFunctions are for the checks. $configz has the kubelet's configuration as it runs.
const cisFunctions = `
kubernetes=/etc/kubernetes pki=/etc/kubernetes/pki manifests=/etc/kubernetes/manifests
at_most() { # MODE FILE...
  limit=$1
  shift
  for file in "$@"; do
    mode=$(stat -L -c %a "$file") || return
    echo "$mode $file"
    [ $((8#$mode & ~8#$limit & 8#7777)) = 0 ] || status=1
  done
  return "${status:-0}"
}
owned_by() { # USER:GROUP FILE...
  want=$1
  shift
  for file in "$@"; do
    owner=$(stat -L -c %U:%G "$file") || return
    echo "$owner $file"
    [ "$owner" = "$want" ] || status=1
  done
  return "${status:-0}"
}
argument() { # PROGRAM NAME: its value, if the process has it
  process=$(pgrep -o -x "$1") || exit
  tr '\0' '\n' <"/proc/$process/cmdline" | sed -n "s/^--$2=//p"
}
server() { argument kube-apiserver "$1"; }
manager() { argument kube-controller "$1"; } # process names have 15 letters
equals() { # VALUE WANT
  echo "${1:-nothing}"
  [ "$1" = "$2" ]
}
given() { # VALUE
  echo "${1:-nothing}"
  [ -n "$1" ]
}
contains() { # LIST WORD
  echo "${1:-nothing}"
  case ",$1," in *",$2,"*) ;; *) return 1 ;; esac
}
lacks() { ! contains "$@"; }
files() { # FILE...: all are named and there
  echo "$*"
  for file in "$@"; do [ -s "$file" ] || return; done
}
config() { # JQ-PROGRAM: of the kubelet's configuration
  jq -r "$1" <<<"$configz"
}
# What an administrator is answered.
answer() { # PORT PATH
  curl -sk --noproxy '*' -m 5 -o /dev/null -w '%{http_code}\n' --cert /run/cis/admin.crt --key /run/cis/admin.key "https://127.0.0.1:$1$2"
}
anonymous() { # PORT PATH
  curl -sk --noproxy '*' -m 5 -o /dev/null -w '%{http_code}\n' "https://127.0.0.1:$1$2"
}
# curl's exit code 35: the handshake was refused.
handshake() { # ADDRESS:PORT CURL-ARGUMENT...
  server=$1
  shift
  [ ! -s /run/cis/client.crt ] || set -- --cert /run/cis/client.crt --key /run/cis/client.key "$@"
  curl -sk --http1.1 --noproxy '*' -m 5 -o /dev/null "$@" "https://$server/"
  echo "${server##*:}: $?"
}
weak_refused() { # PORT
  set -- "$(handshake "127.0.0.1:$1" --tls-max 1.2 --ciphers 'ECDHE-RSA-AES128-SHA:ECDHE-ECDSA-AES128-SHA:AES128-GCM-SHA256'
    handshake "127.0.0.1:$1" --tls-max 1.1 --ciphers 'DEFAULT:@SECLEVEL=0')" "$1: 35
$1: 35"
  equals "$@"
}
issuer() { # PORT: who has signed the server's certificate
  curl -sk --noproxy '*' -m 5 -o /dev/null -w '%{certs}' "https://127.0.0.1:$1/" | sed -n 's/^Issuer: *CN *= *\([^@]*\).*/\1/p' | head -n 1
}
kubelet_unit() { systemctl show -p FragmentPath --value kubelet; }
kubelet_config() { systemctl show -p Environment --value kubelet | tr ' ' '\n' | sed -n 's/^CONFIG=//p'; }
`

// cisControlPlane are items of control planes.
var cisControlPlane = []cisItem{
	{id: "1.1.1", check: `at_most 600 $manifests/kube-apiserver.yaml`},
	{id: "1.1.2", check: `owned_by root:root $manifests/kube-apiserver.yaml`},
	{id: "1.1.3", check: `at_most 600 $manifests/kube-controller-manager.yaml`},
	{id: "1.1.4", check: `owned_by root:root $manifests/kube-controller-manager.yaml`},
	{id: "1.1.5", check: `at_most 600 $manifests/kube-scheduler.yaml`},
	{id: "1.1.6", check: `owned_by root:root $manifests/kube-scheduler.yaml`},
	{id: "1.1.7", check: `at_most 600 $manifests/etcd.yaml`},
	{id: "1.1.8", check: `owned_by root:root $manifests/etcd.yaml`},
	{id: "1.1.9", check: `at_most 600 /etc/cni/net.d/*.conflist && equals "$(stat -c %a /var/lib/cni/networks/*/10.* | sort -u)" 600`,
		found: "600 /etc/cni/net.d/05-nixbench.conflist\n644"},
	{id: "1.1.10", check: `owned_by root:root /etc/cni/net.d/*.conflist $(find /var/lib/cni -type f)`},
	{id: "1.1.11", check: `at_most 700 "$(argument etcd data-dir)"`},
	{id: "1.1.12", check: `owned_by etcd:etcd "$(argument etcd data-dir)"`, found: "root:root /var/lib/etcd"},
	{id: "1.1.13", check: `at_most 600 $kubernetes/admin.conf $(find $kubernetes -name super-admin.conf)`},
	{id: "1.1.14", check: `owned_by root:root $kubernetes/admin.conf $(find $kubernetes -name super-admin.conf)`},
	{id: "1.1.15", check: `at_most 600 $kubernetes/scheduler.conf`},
	{id: "1.1.16", check: `owned_by root:root $kubernetes/scheduler.conf`},
	{id: "1.1.17", check: `at_most 600 $kubernetes/controller-manager.conf`},
	{id: "1.1.18", check: `owned_by root:root $kubernetes/controller-manager.conf`},
	{id: "1.1.19", check: `owned_by root:root $(find $pki)`},
	{id: "1.1.20", check: `at_most 644 $(find $pki -name '*.crt')`},
	{id: "1.1.21", check: `at_most 600 $(find $pki -name '*.key' -o -name '*.json')`},

	{id: "1.2.1", check: `equals "$(server anonymous-auth)" false`, found: "nothing"},
	{id: "1.2.2", check: `equals "$(server token-auth-file)" ''`},
	{id: "1.2.3", check: `contains "$(server enable-admission-plugins)" DenyServiceExternalIPs`, found: "NodeRestriction"},
	{id: "1.2.4", check: `files "$(server kubelet-client-certificate)" "$(server kubelet-client-key)"`},
	{id: "1.2.5", check: `given "$(server kubelet-certificate-authority)"`, found: "nothing"},
	{id: "1.2.6", check: `lacks "$(server authorization-mode)" AlwaysAllow`},
	{id: "1.2.7", check: `contains "$(server authorization-mode)" Node`},
	{id: "1.2.8", check: `contains "$(server authorization-mode)" RBAC`},
	{id: "1.2.9", check: `contains "$(server enable-admission-plugins)" EventRateLimit`, found: "NodeRestriction"},
	{id: "1.2.10", check: `lacks "$(server enable-admission-plugins)" AlwaysAdmit`},
	{id: "1.2.11", check: `contains "$(server enable-admission-plugins)" AlwaysPullImages`, found: "NodeRestriction"},
	{id: "1.2.12", check: `lacks "$(server disable-admission-plugins)" ServiceAccount`},
	{id: "1.2.13", check: `lacks "$(server disable-admission-plugins)" NamespaceLifecycle`},
	{id: "1.2.14", check: `contains "$(server enable-admission-plugins)" NodeRestriction`},
	{id: "1.2.15", check: `equals "$(server profiling)" false && equals "$(answer 6443 /debug/pprof/)" 404`},
	{id: "1.2.16", check: `files "$(server audit-log-path)"`},
	{id: "1.2.17", check: `equals "$(server audit-log-maxage)" 30`},
	{id: "1.2.18", check: `equals "$(server audit-log-maxbackup)" 10`},
	{id: "1.2.19", check: `equals "$(server audit-log-maxsize)" 100`},
	{id: "1.2.20", check: `equals "$(server request-timeout)" ''`},
	{id: "1.2.21", check: `equals "$(server service-account-lookup)" ''`},
	{id: "1.2.22", check: `files "$(server service-account-key-file)"`},
	{id: "1.2.23", check: `files "$(server etcd-certfile)" "$(server etcd-keyfile)"`},
	{id: "1.2.24", check: `files "$(server tls-cert-file)" "$(server tls-private-key-file)"`},
	{id: "1.2.25", check: `files "$(server client-ca-file)"`},
	{id: "1.2.26", check: `files "$(server etcd-cafile)"`},
	{id: "1.2.27", check: `files "$(server encryption-provider-config)"`, option: "encryptionAtRest.enable"},
	{id: "1.2.28", check: `equals "$(jq -r '.resources[0].providers[0] | keys[]' "$(server encryption-provider-config)")" secretbox`, option: "encryptionAtRest.enable"},
	{id: "1.2.29", check: `weak_refused 6443`},

	{id: "1.3.1", check: `given "$(manager terminated-pod-gc-threshold)"`, found: "nothing"},
	{id: "1.3.2", check: `equals "$(manager profiling)" false && equals "$(answer 10257 /debug/pprof/)" 404`},
	{id: "1.3.3", check: `equals "$(manager use-service-account-credentials)" true`},
	{id: "1.3.4", check: `files "$(manager service-account-private-key-file)"`},
	{id: "1.3.5", check: `files "$(manager root-ca-file)"`},
	{id: "1.3.6", check: `lacks "$(manager feature-gates)" RotateKubeletServerCertificate=false`},
	{id: "1.3.7", check: `equals "$(manager bind-address)" 127.0.0.1`},
	{id: "1.4.1", check: `equals "$(argument kube-scheduler profiling)" false && equals "$(answer 10259 /debug/pprof/)" 404`},
	{id: "1.4.2", check: `equals "$(argument kube-scheduler bind-address)" 127.0.0.1`},

	{id: "2.1", check: `files "$(argument etcd cert-file)" "$(argument etcd key-file)"`},
	{id: "2.2", check: `equals "$(argument etcd client-cert-auth)" true && equals "$(anonymous 2379 /version)" 000`},
	{id: "2.3", check: `equals "$(argument etcd auto-tls)" ''`},
	{id: "2.4", check: `files "$(argument etcd peer-cert-file)" "$(argument etcd peer-key-file)"`},
	{id: "2.5", check: `equals "$(argument etcd peer-client-cert-auth)" true`},
	{id: "2.6", check: `equals "$(argument etcd peer-auto-tls)" ''`},
	{id: "2.7", check: `files "$(argument etcd trusted-ca-file)" "$(server client-ca-file)" && ! cmp -s "$(argument etcd trusted-ca-file)" "$(server client-ca-file)"`},

	{id: "3.2.1", check: `files "$(server audit-policy-file)" && at_most 600 "$(server audit-policy-file)" "$(server audit-log-path)" && at_most 700 "$(dirname "$(server audit-log-path)")"`},
	// What cis_test.go has done before: each with its metadata, and nothing with contents.
	{id: "3.2.2", check: `log=$(server audit-log-path)
    logged() { jq -ce "select(.objectRef.resource == \"$1\" and .objectRef.subresource == $2 and .verb == \"$3\" and .level == \"Metadata\") | [.user.username, .verb, .objectRef.resource, .objectRef.name]" "$log" | head -n 1 | grep .; }
    logged secrets null create && logged secrets null get && logged configmaps null create && logged deployments null create && logged pods '"exec"' get || exit
    ! grep -o cis-canary-content "$log" && ! jq -e 'select(.requestObject or .responseObject)' "$log"`},
}

// cisEveryNode are items of all nodes, since control planes have a kubelet, too.
var cisEveryNode = []cisItem{
	{id: "4.1.1", check: `at_most 600 "$(kubelet_unit)"`, found: "444 /etc/systemd/system/kubelet.service"},
	{id: "4.1.2", check: `owned_by root:root "$(kubelet_unit)"`},
	{id: "4.1.3", check: `equals "$(find $kubernetes -name '*proxy*.conf')" ''`},
	{id: "4.1.4", check: `equals "$(find $kubernetes -name '*proxy*.conf')" ''`},
	{id: "4.1.5", check: `at_most 600 $kubernetes/kubelet.conf`},
	{id: "4.1.6", check: `owned_by root:root $kubernetes/kubelet.conf`},
	{id: "4.1.7", check: `at_most 644 "$(config .authentication.x509.clientCAFile)"`},
	{id: "4.1.8", check: `owned_by root:root "$(config .authentication.x509.clientCAFile)"`},
	{id: "4.1.9", check: `equals "$(stat -c %a "$(kubelet_config)")" 600`, found: "444"},
	{id: "4.1.10", check: `owned_by root:root "$(kubelet_config)" /var/lib/kubelet/config.yaml`},

	{id: "4.2.1", check: `equals "$(config .authentication.anonymous.enabled)" false && equals "$(anonymous 10250 /pods)" 401`},
	{id: "4.2.2", check: `equals "$(config .authorization.mode)" Webhook`},
	{id: "4.2.3", check: `files "$(config .authentication.x509.clientCAFile)"`},
	{id: "4.2.4", check: `equals "$(config '.readOnlyPort // 0')" 0 && ! curl -s --noproxy '*' -m 2 http://127.0.0.1:10255/pods`},
	{id: "4.2.5", check: `equals "$(config .streamingConnectionIdleTimeout)" 4h0m0s`},
	{id: "4.2.6", check: `equals "$(config .makeIPTablesUtilChains)" true`},
	{id: "4.2.7", check: `equals "$(argument kubelet hostname-override)" ''`, found: "$NODE"},
	{id: "4.2.8", check: `equals "$(config .eventRecordQPS)" 50`},
	{id: "4.2.9", check: `equals "$(issuer 10250)" kubernetes`, found: "$NODE-ca"},
	{id: "4.2.10", check: `equals "$(config .rotateCertificates)" true`},
	{id: "4.2.11", check: `equals "$(config '.serverTLSBootstrap // false')" true`, found: "false"},
	{id: "4.2.12", check: `weak_refused 10250`},
	{id: "4.2.13", check: `equals "$(config '.podPidsLimit > 0')" true`, found: "false"},
	{id: "4.2.14", check: `equals "$(config .seccompDefault)" true`},
	{id: "4.3.1", check: `ss -Hltn 'sport = 10249' | tee /dev/stderr | awk '$4 != "127.0.0.1:10249" { exit 1 } END { exit NR != 1 }'`},
}
