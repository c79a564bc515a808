// Looks names up as programs in Node do, and prints a line for each: "lookup" by the
// system's getaddrinfo, as everything that connects does, "resolve" by c-ares.
const dns = require('node:dns').promises
const [, , how, ...names] = process.argv

async function addresses(name) {
  if (how === 'lookup') return (await dns.lookup(name, { all: true })).map((a) => a.address)
  const found = await Promise.allSettled([dns.resolve4(name), dns.resolve6(name)])
  const all = found.flatMap((f) => f.value ?? [])
  if (all.length === 0) throw found[0].reason
  return all
}

async function main() {
  for (const name of names) {
    try {
      console.log([name, ...(await addresses(name))].join(' '))
    } catch (e) {
      console.log(`${name} none: ${e.code}`)
    }
  }
}
main()
