module example/caught

go 1.26.0

require google.golang.org/grpc v1.80.0
