#include "launcher/nodes/store/other_service.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "launcher/os/system/utf8.h"

namespace launcher::store {
namespace {

constexpr std::size_t kMostQuoted = 60;
constexpr std::size_t kMostBytes = 8;

struct Beginning {
  std::string_view bytes;
  std::string_view name;
};

// What servers of each protocol say first, or to a request that they do not understand.
constexpr std::array kBeginnings = std::to_array<Beginning>({
    {"SSH-", "an SSH server"},
    {"HTTP/", "an HTTP server"},
    {"<!DOCTYPE", "an HTTP server"},
    {"<html", "an HTTP server"},
    {"<HTML", "an HTTP server"},
    {"-ERR", "a Redis or POP3 server"},
    {"-NOAUTH", "a Redis server"},
    {"-DENIED", "a Redis server"},
    {"+OK", "a POP3 server"},
    {"* OK", "an IMAP server"},
    {"RFB ", "a VNC server"},
    {"ERROR\r\n", "a memcached server"},
    {"AMQP", "an AMQP server"},
    {"INFO {", "a NATS server"},
});

std::string_view first_line(std::string_view bytes) {
  return bytes.substr(0, bytes.find_first_of("\r\n"));
}

// Records of TLS: a kind, the version 3.x, a length.
bool is_tls(std::string_view bytes) {
  return bytes.size() >= 3 && bytes[0] >= 0x14 && bytes[0] <= 0x17 && bytes[1] == 3 && bytes[2] <= 4;
}

// A SETTINGS frame of HTTP/2: its length, the kind 4, no flag or ACK, stream 0.
bool is_http2(std::string_view bytes) {
  return bytes.size() >= 9 && bytes[0] == 0 && bytes[1] == 0 && bytes[3] == 4 &&
         static_cast<unsigned char>(bytes[4]) <= 1 && bytes.substr(5, 4) == std::string_view("\0\0\0\0", 4);
}

// "220 mail.example.org ESMTP": FTP and SMTP begin with it.
bool has_reply_code(std::string_view line) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  return line.size() >= 4 && std::all_of(line.begin(), line.begin() + 3, is_digit) &&
         (line[3] == ' ' || line[3] == '-');
}

// A packet of MySQL: its length in three bytes, number 0, protocol 10.
bool is_mysql(std::string_view bytes) {
  return bytes.size() >= 6 && bytes[1] == 0 && bytes[2] == 0 && bytes[3] == 0 && bytes[4] == 10 &&
         std::isdigit(static_cast<unsigned char>(bytes[5])) != 0;
}

std::string quoted(std::string_view line) {
  return " (" + printable(beginning(line, kMostQuoted)) + ")";
}

bool is_text(std::string_view line) {
  return !line.empty() && std::all_of(line.begin(), line.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f;
  });
}

std::string in_hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes.substr(0, kMostBytes)) {
    std::array<char, 8> shown{};
    std::snprintf(shown.data(), shown.size(), "%s0x%02x", text.empty() ? "" : " ",
                  static_cast<unsigned>(static_cast<std::uint8_t>(byte)));
    text += shown.data();
  }
  return text + (bytes.size() > kMostBytes ? " ..." : "");
}

}  // namespace

std::string describe_service(std::string_view bytes) {
  const std::string_view line = first_line(bytes);
  for (const auto& [start, name] : kBeginnings) {
    if (bytes.starts_with(start)) return std::string(name) + quoted(line);
  }
  if (is_tls(bytes)) return "a TLS server (HTTPS or another protocol inside TLS)";
  if (is_http2(bytes)) return "an HTTP/2 server (gRPC or another one)";
  if (is_mysql(bytes)) return "a MySQL server";
  if (has_reply_code(line)) return "an SMTP or FTP server" + quoted(line);
  if (is_text(line)) return "another program, which sent '" + printable(beginning(line, kMostQuoted)) + "'";
  return "another program, which sent " + in_hexadecimal(bytes);
}

}  // namespace launcher::store
