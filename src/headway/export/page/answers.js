"use strict";

/** Answers messages [number, name, value] with [number, result, error]. */
function answerWith(functions) {
  self.onmessage = async ({ data: [number, name, value] }) => {
    try {
      self.postMessage([number, await functions[name](value), null]);
    } catch (error) {
      self.postMessage([number, null, String(error?.message ?? error)]);
    }
  };
}
