package shop

func init() {}
