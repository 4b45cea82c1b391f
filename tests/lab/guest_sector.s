# The boot sector of the guests that work: 16-bit code that SeaBIOS starts at 0000:7c00 on QEMU's `pc` machine.
#
# It prints "start", does `units` units, prints the number of each as a line when it is done, prints "end" and powers the
# machine off. A unit is `steps` steps; a step is `turns` turns of a loop, then `reads` reads of a random sector of the
# second IDE disk. It waits for a read with the CPU halted. Bytes of the sector that are parameters: see `parameters`.
# `opt/trimtab/units` of the firmware's configuration (-fw_cfg, decimal) goes before `units`.

        .set    SERIAL, 0x3f8           # first serial port; its line status is at +5
        .set    PM_STATUS, 0x600        # ACPI of the `pc` machine where SeaBIOS puts it: PM1 status, enable at +2,
        .set    PM_CONTROL, 0x604       # control
        .set    PM_BUTTON, 0x100        # power button, in status and enable
        .set    PM_OFF, 0x2000          # SLP_EN with the sleep type of S5, which is 0
        .set    ATA, 0x1f0              # primary IDE channel
        .set    BUFFER, 0x8000
        .set    SELECT, 0x510           # firmware configuration: selector, data at +1
        .set    DIRECTORY, 0x19         # its list of files: count, then entries of 64 bytes, big endian

        .code16
        .globl  _start
_start: cli
        ljmp    $0, $begin
begin:  xorw    %ax, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        movw    $0x7c00, %sp
        cld
        movw    $ready, 0x76 * 4        # interrupt 14, of the primary IDE channel
        movw    %ax, 0x76 * 4 + 2
        movb    $0xfb, %al              # of all interrupts, only 14 passes
        outb    %al, $0x21
        movb    $0xbf, %al
        outb    %al, $0xa1
        movw    $PM_STATUS + 2, %dx     # let the power button show in the status
        movw    $PM_BUTTON, %ax
        outw    %ax, %dx
        call    asked
        movw    $started, %si
        call    text
        xorl    %ebp, %ebp              # units done
unit:   cmpl    units, %ebp
        jae     done
        movl    steps, %edi
step:   movl    turns, %ecx
1:      decl    %ecx
        jnz     1b
        cmpb    $0, heeds
        je      2f
        movw    $PM_STATUS, %dx
        inw     %dx, %ax
        testw   $PM_BUTTON, %ax
        jnz     off
2:      movl    reads, %ecx
3:      jecxz   4f
        call    read
        decl    %ecx
        jmp     3b
4:      decl    %edi
        jnz     step
        incl    %ebp
        movl    %ebp, %eax
        call    number
        jmp     unit

done:   movw    $ended, %si
        call    text
off:    movw    $SERIAL + 5, %dx        # until the last character has left
1:      inb     %dx, %al
        testb   $0x40, %al
        jz      1b
        movw    $PM_CONTROL, %dx
        movw    $PM_OFF, %ax
        outw    %ax, %dx
2:      hlt
        jmp     2b

# Prints %eax with at least four digits, and a line feed.
number: pushl   %edi
        movl    $10, %ebx
        xorw    %cx, %cx
1:      xorl    %edx, %edx
        divl    %ebx
        pushw   %dx
        incw    %cx
        testl   %eax, %eax
        jnz     1b
        cmpw    $4, %cx
        jb      1b
2:      popw    %ax
        addb    $'0', %al
        call    put
        loop    2b
        movb    $'\n', %al
        call    put
        popl    %edi
        ret

# Prints the text at %si, up to its zero.
1:      call    put
text:   lodsb
        testb   %al, %al
        jnz     1b
        ret

# Prints %al once the port takes it.
put:    movb    %al, %ah
        movw    $SERIAL + 5, %dx
1:      inb     %dx, %al
        testb   $0x20, %al
        jz      1b
        movb    %ah, %al
        movw    $SERIAL, %dx
        outb    %al, %dx
        ret

# Reads a random sector of the second disk.
read:   pushl   %ecx
        pushl   %edi
        imull   $1664525, seed, %eax
        addl    $1013904223, %eax
        movl    %eax, seed
        mull    sectors
        movl    %edx, %eax              # the sector
        movw    $ATA + 2, %dx
        pushw   %ax
        movb    $1, %al                 # one of them
        outb    %al, %dx
        popw    %ax
        movw    $3, %cx
1:      incw    %dx
        outb    %al, %dx
        shrl    $8, %eax
        loop    1b
        orb     $0xf0, %al              # of the second disk, counted from 0
        incw    %dx
        outb    %al, %dx
        movb    $0, arrived
        movb    $0x20, %al
        incw    %dx
        outb    %al, %dx
2:      cli
        cmpb    $0, arrived
        jne     3f
        sti                             # takes effect after the next instruction: nothing arrives between the two
        hlt
        jmp     2b
3:      movw    $ATA, %dx
        movw    $256, %cx
        movw    $BUFFER, %di
        rep insw
        popl    %edi
        popl    %ecx
        ret

# The disk has done what it was asked.
ready:  pushw   %ax
        pushw   %dx
        movw    $ATA + 7, %dx
        inb     %dx, %al
        movb    $1, arrived
        movb    $0x20, %al
        outb    %al, $0xa0
        outb    %al, $0x20
        popw    %dx
        popw    %ax
        iret

# Looks for the number of units in the firmware's configuration.
asked:  movw    $DIRECTORY, %ax
        movw    $SELECT, %dx
        outw    %ax, %dx
        incw    %dx
        movw    $4, %cx                 # how many files there are: fewer than 65536
        movw    $BUFFER, %di
        rep insb
        movw    BUFFER + 2, %bx
        xchgb   %bl, %bh
1:      decw    %bx
        js      4f
        movw    $64, %cx
        movw    $BUFFER, %di
        rep insb
        movw    $name, %si
        movw    $BUFFER + 8, %di
        movw    $name_end - name, %cx
        repe cmpsb
        jne     1b
        movw    BUFFER + 4, %ax         # what selects the file
        xchgb   %al, %ah
        movw    BUFFER + 2, %cx         # its size
        xchgb   %cl, %ch
        decw    %dx
        outw    %ax, %dx
        incw    %dx
        xorl    %ebx, %ebx
2:      xorl    %eax, %eax
        inb     %dx, %al
        subb    $'0', %al
        imull   $10, %ebx
        addl    %eax, %ebx
        loop    2b
        movl    %ebx, units
4:      ret

started: .asciz "start\n"
ended:  .asciz  "end\n"
name:   .asciz  "opt/trimtab/units"
name_end:
arrived: .byte  0

        .org    476
parameters:                             # little endian
units:  .long   0
steps:  .long   1
turns:  .long   1
reads:  .long   0                       # per step
sectors: .long  1                       # of the second disk
seed:   .long   1
heeds:  .byte   1                       # 1: the power button ends it, 0: it does not
        .org    510
        .word   0xaa55
