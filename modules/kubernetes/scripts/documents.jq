# What kubeadm reads: the template, and what this node alone knows. $want is init, join
# or cluster; $peer is the address of a control plane to join through, or "".
$template[0] as $t | $node[0] as $node | ($token | rtrimstr("\n")) as $token

| def registered:
    .nodeRegistration.name = $node.name
    # Without a list kubeadm has its own of a control plane.
    | $registration[0].taints as $taints
    | if $taints == null then . else .nodeRegistration.taints = $taints end;
  def advertised: .advertiseAddress = $node.address;
  def at($port): if $peer == "" then . else "\($peer):\($port)" end;

  if $want == "join" then
    [ $t.join
      | registered
      | .discovery.bootstrapToken.token = $token
      | if .controlPlane then
          .controlPlane.localAPIEndpoint |= advertised
          | .controlPlane.localAPIEndpoint.bindPort as $port
          | .discovery.bootstrapToken.apiServerEndpoint |= at($port)
        else . end ]
  else
    [ ($t.init
       | registered
       | .localAPIEndpoint |= advertised
       # Only a cluster that comes into being gets a token from here: an old one would
       # be given new life with each change of settings.
       | if $want == "init" then .bootstrapTokens = [ { token: $token, ttl: $ttl, description: "nixbench" } ] else . end),
      $t.cluster, $t.kubelet, $t.proxy ]
  end
| map(tojson) | join("\n---\n")
