/* panel.h: what panel_shared.c needs to know of a panel's memory. */
#ifndef NEAP_PANEL_INSIDE_H
#define NEAP_PANEL_INSIDE_H

/* A panel begins with so many bytes that are written when it is made and never again; the words
 * that its users share follow. */
#define NEAP__PANEL_HEADER 64

#endif
