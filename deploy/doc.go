// Package deploy holds the manifests in the folder kubernetes, and the tests that read them and
// docker-compose.yml as Kubernetes and Compose would. It is a module of its own, because these
// tests need the types of both.
package deploy
