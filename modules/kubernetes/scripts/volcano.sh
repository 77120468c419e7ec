# Give Volcano's webhooks a certificate of the authority $CA_CERT and $CA_KEY: create the Secret that their pod mounts, unless the
# cluster has one whose certificate this authority has signed. The key of the certificate
# is only in memory ($RUNTIME_DIRECTORY) and in the Secret.

name=volcano-admission-service.volcano-system.svc
cd "$RUNTIME_DIRECTORY" || exit

kube() {
  kubectl --kubeconfig /etc/kubernetes/admin.conf --server "https://127.0.0.1:$PORT" --tls-server-name kubernetes --request-timeout 30s "$@"
}

# is_signed reports whether the certificate in the Secret is valid for a month, and signed by the authority $CA_CERT.
is_signed() {
  kube -n volcano-system get secret volcano-admission-secret -o 'jsonpath={.data.tls\.crt}' 2>/dev/null | base64 -d >present.crt &&
    openssl verify -CAfile "$CA_CERT" present.crt >/dev/null 2>&1 &&
    openssl x509 -in present.crt -noout -checkend 2592000 >/dev/null
}

sign() {
  printf 'subjectAltName=DNS:%s,DNS:%s.%s\nextendedKeyUsage=serverAuth\n' "$name" "$name" "$CLUSTER_DOMAIN" >extensions
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$name" -keyout tls.key -out tls.csr 2>/dev/null &&
    openssl x509 -req -in tls.csr -CA "$CA_CERT" -CAkey "$CA_KEY" -set_serial "0x$(openssl rand -hex 16)" -days 3650 \
      -extfile extensions -out tls.crt 2>/dev/null
}

# Wait for at most ten minutes: this service starts before the node is a member of the cluster, and before keys are uploaded.
end=$((SECONDS + 600))
until [ -s "$CA_KEY" ] && [ -s "$CA_CERT" ] && kube get --raw /readyz >/dev/null 2>&1; do
  if [ "$SECONDS" -ge "$end" ]; then
    echo "the API server does not answer, or $CA_KEY or $CA_CERT is missing" >&2
    exit 1
  fi
  sleep 1
done

if is_signed; then
  exit 0
fi
trap 'rm -f tls.key' EXIT
sign || { echo "the certificate of the webhooks cannot be signed with $CA_KEY" >&2; exit 1; }
kube create namespace volcano-system --dry-run=client -o json | kube apply --server-side --force-conflicts --field-manager nixbench-volcano -f - &&
  kube -n volcano-system create secret generic volcano-admission-secret --from-file tls.crt --from-file tls.key --from-file "ca.crt=$CA_CERT" \
    --dry-run=client -o json | kube apply --server-side --force-conflicts --field-manager nixbench-volcano -f - || exit
# Restart the webhooks, if they run, because they read the certificate only when they start.
if kube -n volcano-system get deployment volcano-admission >/dev/null 2>&1; then
  kube -n volcano-system rollout restart deployment/volcano-admission
fi
