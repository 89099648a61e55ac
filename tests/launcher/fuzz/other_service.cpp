// What another program than a store sends, which a line for the user quotes.
#include "launcher/nodes/store/store_client.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  return {"SSH-2.0-OpenSSH_9.2\r\n",
          "HTTP/1.1 400 Bad Request\r\nServer: x\r\n",
          "-ERR unknown command\r\n",
          std::string("\x15\x03\x01\x00\x02\x02\x46", 7),
          std::string("\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03", 11),
          "220 mail ESMTP\r\n",
          std::string("J\0\0\0\x0a"
                      "8.0.32",
                      11),
          "\x1b[2J\xff\n"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  if (bytes.empty()) return Outcome::kRefused;
  const std::string text = launcher::store::describe_service(bytes);
  require(text.starts_with("a"), "a service has a description");
  require(text.size() < 400, "a line is short");
  for (const char c : text)
    require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "no control character is shown");
  return text.starts_with("another program") ? Outcome::kRefused : Outcome::kAccepted;
}
