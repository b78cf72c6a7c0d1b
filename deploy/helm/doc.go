// Package helm holds the chart of stockd to what Helm and Kubernetes say of it. It is a module
// of its own, so that the programs do not depend on either.
package helm
