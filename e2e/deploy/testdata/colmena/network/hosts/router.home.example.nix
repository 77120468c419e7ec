{ nodes, ... }:
{
  deployment.tags = [ "infra" ];
  # What another node says of itself.
  environment.etc."which".text = "router; storage at ${nodes.nas.config.deployment.targetHost} is ${nodes.nas.config.networking.hostName}";
}
