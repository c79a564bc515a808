package leftout

func init() {}
