package network

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// netmask is of the network that all places are in: a device leads to every address
// whose first two bytes are those of its own.
var netmask = netip.AddrFrom4([4]byte{255, 255, 0, 0})

// deviceName is the same in every place.
const deviceName = "link0"

// openDevice makes the way out of the namespace that the thread is in: a device whose
// packets are read from the file and written to it. It has the addresses, of which the
// first is where connections come from that leave the place.
func openDevice(addresses []netip.Addr) (*os.File, error) {
	fail := func(what string, err error) (*os.File, error) {
		return nil, fmt.Errorf("device %s: %s: %w", deviceName, what, err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fail("open /dev/net/tun", err)
	}
	// os.NewFile comes after the device is made: a file of no device can't be waited for.
	request, err := unix.NewIfreq(deviceName)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = configure(addresses)
	}
	if err != nil {
		unix.Close(fd)
		return fail("make it", err)
	}
	return os.NewFile(uintptr(fd), deviceName), nil
}

// configure gives the device its addresses and switches it and the loopback on.
func configure(addresses []netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	for i, address := range addresses {
		name := deviceName
		if i > 0 {
			name = fmt.Sprintf("%s:%d", deviceName, i)
		}
		if err := setAddress(fd, unix.SIOCSIFADDR, name, address); err != nil {
			return fmt.Errorf("address %s: %w", address, err)
		}
		if err := setAddress(fd, unix.SIOCSIFNETMASK, name, netmask); err != nil {
			return fmt.Errorf("netmask of %s: %w", address, err)
		}
	}
	for _, name := range []string{"lo", deviceName} {
		if err := up(fd, name); err != nil {
			return fmt.Errorf("switch %s on: %w", name, err)
		}
	}
	return nil
}

func setAddress(fd int, what uint, name string, address netip.Addr) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := request.SetInet4Addr(address.AsSlice()); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, what, request)
}

func up(fd int, name string) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return err
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
