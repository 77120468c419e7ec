# The scheduler Volcano: vc-scheduler, vc-controller-manager and vc-webhook-manager.
{
  lib,
  buildGoModule,
  fetchFromGitHub,
}:
buildGoModule (finalAttrs: {
  pname = "volcano";
  version = "1.14.4";

  src = fetchFromGitHub {
    owner = "volcano-sh";
    repo = "volcano";
    tag = "v${finalAttrs.version}";
    hash = "sha256-Hm9WEqU6gcrsWX0PiXbomWrsHYCWgD4Qr1zem91pOy0=";
  };
  vendorHash = "sha256-9gvP9SMVU62LzoEAuwK/zBCE//KrJbN9ERi40fBu7os=";

  env.CGO_ENABLED = 0;
  subPackages = [
    "cmd/controller-manager"
    "cmd/scheduler"
    "cmd/webhook-manager"
  ];
  ldflags = [
    "-s"
    "-w"
    "-X volcano.sh/volcano/pkg/version.Version=v${finalAttrs.version}"
  ];

  postInstall = ''
    for program in controller-manager scheduler webhook-manager; do
      mv $out/bin/$program $out/bin/vc-$program
    done
  '';

  meta = {
    description = "Scheduler for Kubernetes with queues and gangs";
    homepage = "https://volcano.sh";
    license = lib.licenses.asl20;
    platforms = lib.platforms.linux;
    mainProgram = "vc-scheduler";
  };
})
