// Package middleboxes tests that "isthmus check" finds what stands between two clusters: load
// balancers and links that change or lose what passes. Both services and the real HAProxy are in
// network namespaces of their own.
package middleboxes
