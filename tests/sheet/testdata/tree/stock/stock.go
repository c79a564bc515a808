package stock

func init() {
	/* nothing

	is in stock */
}
