import java.net.InetAddress;
import java.net.UnknownHostException;

/** Looks names up as programs in Java do, and prints a line for each. */
public class Resolve {
	public static void main(String[] names) {
		for (String name : names) {
			StringBuilder line = new StringBuilder(name);
			try {
				for (InetAddress a : InetAddress.getAllByName(name)) line.append(' ').append(a.getHostAddress());
			} catch (UnknownHostException e) {
				line.append(" none: ").append(e.getMessage());
			}
			System.out.println(line);
		}
	}
}
