/** What stands in for https_fetch.js where there is no node:https. */

export function httpsFetch() {
  throw new TypeError("tls needs Node: other platforms have settings of their own for certificates");
}
