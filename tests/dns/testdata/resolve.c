// Looks names up as programs in C do, by getaddrinfo, and prints a line for each: the name
// and its addresses, or why there are none.
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) {
		struct addrinfo hints, *all = NULL;
		memset(&hints, 0, sizeof hints);
		hints.ai_socktype = SOCK_STREAM;
		int err = getaddrinfo(argv[i], NULL, &hints, &all);
		printf("%s", argv[i]);
		if (err) printf(" none: %s", gai_strerror(err));
		for (struct addrinfo *a = all; a; a = a->ai_next) {
			char text[NI_MAXHOST];
			if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0)
				printf(" %s", text);
		}
		printf("\n");
		if (all) freeaddrinfo(all);
	}
	return 0;
}
