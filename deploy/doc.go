// Package deploy holds the manifests in the folder kubernetes. Its tests parse these manifests and
// docker-compose.yml with the types of Kubernetes and Compose. Only these tests need the types, so
// the package is a separate module.
package deploy
