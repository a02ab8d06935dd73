// Package deploy holds the manifests in the folder kubernetes. Its tests read them and
// docker-compose.yml as Kubernetes and Compose do. It is a separate module, because these tests
// need the types of both.
package deploy
