module github.com/tidemark-io/tidemark/compat

go 1.26.0
