# kubeadm's configuration: the template, plus the values that are known only on the node. $want is init, join
# or cluster; $peer is the address of a control plane to join through, or ""; $skip lists phases to skip.
$template[0] as $t | $node[0] as $node | ($token | rtrimstr("\n")) as $token
| ($skip | split(" ") | map(select(. != ""))) as $skip

| def registered:
    .nodeRegistration.name = $node.name
    # Without a list, kubeadm sets its own default for control planes.
    | $registration[0].taints as $taints
    | if $taints == null then . else .nodeRegistration.taints = $taints end;
  def skipping: if $skip == [] then . else .skipPhases = (.skipPhases // []) + $skip end;
  def advertised: .advertiseAddress = $node.address;
  def at($port): if $peer == "" then . else "\($peer):\($port)" end;

  if $want == "join" then
    [ $t.join
      | registered
      | skipping
      | if .controlPlane then .controlPlane.localAPIEndpoint |= advertised else . end
      | if .discovery.bootstrapToken then
          .discovery.bootstrapToken.token = $token
          | .controlPlane.localAPIEndpoint.bindPort as $port
          | .discovery.bootstrapToken.apiServerEndpoint |= at($port)
        else . end ]
  else
    [ ($t.init
       | registered
       | if $want == "init" then skipping else . end
       | .localAPIEndpoint |= advertised
       # Without a token here, kubeadm makes one that is valid for a day.
       | if $want != "init" then .
         elif $token == "" then .bootstrapTokens = [ { ttl: "1s" } ]
         else .bootstrapTokens = [ { token: $token, ttl: $ttl, description: "nixbench" } ] end),
      $t.cluster, $t.kubelet, $t.proxy ]
  end
| map(tojson) | join("\n---\n")
