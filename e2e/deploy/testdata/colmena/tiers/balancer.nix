{
  deployment.tags = [ "edge" ];
  networking.hostName = "";
}
