#include <ddp/ddp.h>
